"""Records -> what follows from them: which implementation wins where. Knows neither files nor tables."""
