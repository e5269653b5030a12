"""BatchNorm2d layers whose statistics follow the stream."""
