"""PointGoal2: a point robot, goals, hazards and vases."""
