"""Goals, limits, legal designs and their exact scores."""
