"""How ops take all samples of ``vmap`` at once."""
