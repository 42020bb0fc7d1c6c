"""What several model families share: configs, operators, decoders, encoders."""
