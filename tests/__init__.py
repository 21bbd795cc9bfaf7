"""Tests: unit (pure, no sockets), contract, integration (PostgreSQL, Valkey), e2e (live processes), chaos, bench.

A package on purpose: without this file any installed distribution that ships a `tests` wins over ours.
"""
