"""Methods that read only the features of an ordinary pass, which they share with Source."""
