"""JAX: functions of jax.numpy, jax.nn and jax.lax."""
