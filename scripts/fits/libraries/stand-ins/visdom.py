"""What the script of DeepLab imports of Visdom, a server that draws. Nothing uses it."""


class Visdom:
    pass
