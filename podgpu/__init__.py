"""The programs of podgpu: the command line, the doctor, and the scheduler extender.

`python -m podgpu` runs the command `podgpu`.
"""
