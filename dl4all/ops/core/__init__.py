"""The declaration of ops, and what all of them stand on: tensors without methods, gradients, launches."""
