"""the Compare page"""
