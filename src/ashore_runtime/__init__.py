"""What travels to the robot: acting on a trained bundle with NumPy and safetensors only, nothing from `ashore`."""

__version__ = "0.1.0"
