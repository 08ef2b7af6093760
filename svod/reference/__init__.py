"""What `help` says about public names: texts about arguments and examples, and what joins them."""
