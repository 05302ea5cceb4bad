"""The programs: the command line, the doctor, the scheduler extender.

`python -m podgpu` is the command `podgpu`.
"""
