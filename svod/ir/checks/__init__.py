"""What must hold of each op, by the kind of graph it is in."""
