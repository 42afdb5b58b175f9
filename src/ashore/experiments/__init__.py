"""Things to do with the rest of the package: play a world, show the demo, measure speed, look at the machine."""
