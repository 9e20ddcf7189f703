"""The version, which files and commands carry."""

VERSION = "0.1.0"
