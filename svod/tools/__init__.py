"""The command line and what it runs: demo, doctor, environment, benchmark."""
