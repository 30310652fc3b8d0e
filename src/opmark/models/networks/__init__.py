"""Networks of the zoo in torch. Only a worker imports these modules: each imports torch when it is loaded."""
