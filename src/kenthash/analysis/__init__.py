"""What the paper measures of proxies and of codes, each a small function of arrays."""
