"""The public functions of ``svod``, under the names of the array API standard and of torch."""
