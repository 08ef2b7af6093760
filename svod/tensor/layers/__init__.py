"""The functions of neural networks: activations, attention, convolutions, pooling, losses."""
