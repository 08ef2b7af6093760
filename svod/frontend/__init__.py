"""Programs written for other frameworks, and files of theirs, as Svod tensors and plans."""
