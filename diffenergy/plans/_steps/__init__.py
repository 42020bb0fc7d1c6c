"""From the phases of a workload to training steps: time, energy, a timeline."""
