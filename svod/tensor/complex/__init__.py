"""Tensors of complex numbers: their class, their methods and the formulas behind them."""
