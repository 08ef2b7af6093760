"""What people install: the wheel, in a fresh environment."""
