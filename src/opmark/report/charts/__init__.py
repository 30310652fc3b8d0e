"""Makes charts from the rows of a run. Charts are data; `svg` draws them."""
