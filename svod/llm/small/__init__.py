"""The model that ships: trained by `train` on conversations that `talk` makes up."""
