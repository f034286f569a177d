"""The wheel holds programs of one platform, and works with every Python 3."""
import setuptools
from wheel.bdist_wheel import bdist_wheel


class Distribution(setuptools.Distribution):
    def has_ext_modules(self):
        return True


class Wheel(bdist_wheel):
    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


setuptools.setup(distclass=Distribution, cmdclass={"bdist_wheel": Wheel})
