"""The program `lowtide-selftest`: what a device shows that no test of Lowtide's could see."""
