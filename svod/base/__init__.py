"""What every other part stands on: knobs, errors, hashing, cache folders, log, timing."""
