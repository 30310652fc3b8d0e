"""Whole models as operators: the zoo, models of users, and what runs of them inside a worker."""
