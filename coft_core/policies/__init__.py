"""Decoding policies, one file per method."""

from coft_core.policies.base import Certificate, Policy, Views
from coft_core.policies.coft import CoftPolicy
from coft_core.policies.factorized import FactorizedCoftPolicy
from coft_core.policies.vanilla import VanillaPolicy

__all__ = ["Certificate", "CoftPolicy", "FactorizedCoftPolicy", "Policy", "VanillaPolicy", "Views"]
