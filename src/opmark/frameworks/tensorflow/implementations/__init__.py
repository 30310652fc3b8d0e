"""TensorFlow: functions of tf.math, tf.nn and tf.linalg."""
