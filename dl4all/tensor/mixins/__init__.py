"""Methods and operators of tensors, by subject; the class of tensors is made of these."""
