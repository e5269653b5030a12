"""Mutation testing: small defects are put into a module, and its tests should notice each of them."""
