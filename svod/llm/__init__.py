"""Language models: files, tokenizers, decoders and generation."""
