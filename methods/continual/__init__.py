"""Methods for long streams that take gradient steps: RDumb, RoTTA, ROID and their relatives."""
