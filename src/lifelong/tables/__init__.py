"""Tables of named columns: reading them from any library, and making inputs of them."""
