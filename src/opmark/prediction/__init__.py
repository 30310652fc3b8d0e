"""How long an operator will take, without running it: samples, features, models, intervals."""
