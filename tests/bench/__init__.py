"""Measurements. Each is a module to run by hand or from `make bench`; none is collected by pytest."""
