"""The methods of tensors, one file per family."""
