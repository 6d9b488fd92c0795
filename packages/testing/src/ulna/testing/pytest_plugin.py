# SPDX-License-Identifier: Apache-2.0
"""The pytest plugin: isolated homes and registries, and the report of what conformance checks did not exercise."""
