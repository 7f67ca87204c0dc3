"""Training scripts as people write them, one a way of training; they write down what they train."""
