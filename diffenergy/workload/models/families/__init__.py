"""Model families, a file each: `MODEL_TYPES`, and `build(config)`, which gives a
`Model`."""
