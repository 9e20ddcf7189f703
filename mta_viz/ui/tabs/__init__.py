"""The tabs under the map, one file each: every other way to look at the selected head."""
