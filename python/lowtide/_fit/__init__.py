"""`lowtide.fit`: will it fit?"""
