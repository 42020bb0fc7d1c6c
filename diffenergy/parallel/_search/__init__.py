"""Search of training plans: all legal ones are ranked, the best priced exactly."""
