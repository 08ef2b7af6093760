"""What every family of methods stands on: the fields of a tensor, arguments, live tensors."""
