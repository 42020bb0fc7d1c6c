"""A page in the browser and an HTTP service: a door to the commands, whose requests,
answers and refusals it passes on."""
